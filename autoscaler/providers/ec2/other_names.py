"""The names that other tools have for the keys of an EC2 provider (`config/settings/other_names.py`)."""

from autoscaler.config.settings.other_names import table

EC2 = table(
    ("subnet subnetid subnetids", "write subnets: [subnet-...]", "subnets"),
    (
        "securitygroup securitygroupids sg",
        "write security_groups: [sg-...]",
        "security_groups",
    ),
    ("iaminstanceprofile instanceprofilename role rolename", "write instance_profile"),
    (
        "accesskey accesskeyid awsaccesskeyid secretkey secretaccesskey awssecretaccesskey profile credentials",
        "remove it: the AWS SDK finds credentials in the environment, its files or the host's role",
    ),
    ("vpc vpcid", "remove it: the subnets decide the VPC"),
    ("zone zones availabilityzone availabilityzones az", "remove it: the subnets decide the zone"),
    ("keyname sshkey keypair", "remove it: machines get no SSH key"),
    ("endpoint endpointurl", "set AWS_ENDPOINT_URL in the environment of the controller"),
)
