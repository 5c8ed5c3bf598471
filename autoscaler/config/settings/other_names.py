"""The names that other tools have for keys of fleet.yaml, with what to write instead.

A table is the `others` of the section in which an operator writes such a key. Its names are in lower case
without - and _: `minRunners` and `min_runners` are one. The tools are GitHub's ARC (the charts
gha-runner-scale-set and actions-runner-controller), terraform-aws-github-runner and PyTorch's
scale-config.yml, RunsOn, GARM and Karpenter.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class OtherName(NamedTuple):
    """What to write instead of a key. `means` is the key of the same section that it stands for, or empty."""

    fix: str
    means: str = ""


_READY = "write idle: {min: NUMBER}: so many machines wait ready for jobs"
_TYPES = "write instance_types in an entry of on, such as instance_types: [g5.xlarge]"
_IMAGE = 'write image: {name: "NAME-*", owner: self}: images are found by their names'
_CAPACITY = "write capacity: [spot, on-demand] in an entry of on"
_GPUS = "write accelerator: {vendor: nvidia, count: NUMBER}"
_GROUP = "write runner_group in an entry of github.scopes"
_RESOURCES = 'the instance type decides; for a pod write resources: {cpu: "4"} below on[].pod'
_SCRIPT = "write boot_script_file with the name of a script"
_ARC = "write the organization or repository in github.scopes, and the pod below on[].pod"
_TIMEOUT = "write idle: {timeout: 10m}: so long a machine without a job stays"
_BOOT = "write deadlines: {boot: 15m}"
_EPHEMERAL = "remove it: every runner takes one job, and its machine is terminated"
_DEPENDS = (
    "write idle: {min: NUMBER} for machines that wait ready, max_machines for the largest number"
)
_ENTERPRISE = (
    "write an entry with org for each organization: an enterprise has no runners of this fleet"
)


Row = tuple[str, str] | tuple[str, str, str]
"""Names with the fields of their `OtherName`."""


def renamed(names: str, key: str) -> Row:
    """Return the row of names that stand for a key with a value of the same form."""
    return names, f"write {key}", key


def table(*rows: Row) -> Mapping[str, OtherName]:
    """Return a table of rows."""
    return MappingProxyType(
        {name: OtherName(*fields) for names, *fields in rows for name in names.split()}
    )


_ZONES = (
    "zone zones availabilityzone availabilityzones az",
    "remove it: the subnets of the provider decide the zone",
)

FILE = table(
    ("runnertypes", "this is a scale-config.yml: convert it with autoscaler import"),
    ("apiversion kind metadata spec", "remove it: fleet.yaml is no manifest of Kubernetes"),
    renamed("runners pools runnerpools runnerscalesets nodepools", "skus"),
    ("database db storage", "write store: sqlite:///state.db", "store"),
    ("aws ec2 kubernetes k8s clouds", "write it below providers.NAME", "providers"),
    ("organizations orgs repositories", "write github: {scopes: [{org: NAME}]}"),
    ("version", "remove it"),
    ("githubapp app", "write github: {apps: [{id: NUMBER, private_key_file: FILE}]}"),
    ("url host port address", "write server: {listen: HOST:PORT, public_url: URL}"),
)

GITHUB = table(
    (
        "appid githubapp app application",
        "write apps: [{id: NUMBER, private_key_file: FILE}]",
        "apps",
    ),
    (
        "token pat githubtoken personalaccesstoken",
        "remove it: the controller uses a GitHub App: apps: [{id: NUMBER, private_key_file: FILE}]",
    ),
    ("url baseurl githuburl enterpriseurl ghesurl", "write api_url: https://HOST/api/v3"),
    ("organizations orgs repositories", "write scopes: [{org: NAME}]", "scopes"),
    ("enterprise", _ENTERPRISE),
    (
        "webhooksecret secret",
        "write the secret to a file, and webhook_secret_file with its name",
        "webhook_secret_file",
    ),
)

APP = table(
    renamed("appid applicationid", "id"),
    (
        "clientid",
        "write id with the App ID, a number on the same page of the App's settings",
        "id",
    ),
    (
        "privatekey privatekeybase64 keybase64",
        "write the key to a file, and private_key_file with its name",
        "private_key_file",
    ),
    ("installationid", "remove it: the controller finds the App's installation by the scope"),
    renamed("pem keyfile keypath privatekeypath", "private_key_file"),
)

SCOPE = table(
    renamed("organization organisation orgname owner login", "org"),
    ("repository reponame", "write repo: OWNER/NAME", "repo"),
    (
        "user username",
        "write repo: USER/NAME for each repository: GitHub has no runners of a user",
        "repo",
    ),
    ("enterprise", _ENTERPRISE, "org"),
    ("group", "write runner_group"),
)

SERVER = table(
    ("host port address bind bindaddress", "write listen: HOST:PORT", "listen"),
    renamed("url baseurl externalurl hostname domain controllerurl", "public_url"),
    (
        "cert certificate sslcert tlscert key sslkey tlskey",
        "write tls: {certificate_file: FILE, key_file: FILE}",
    ),
    ("webhookport webhookaddress", "write webhook_listen: HOST:PORT"),
)

LIMITS = table(
    ("max maxrunners maxinstances instances runners", "write machines"),
    ("dollars budget cost costperhour usdperhour", "write dollars_per_hour"),
    (
        "dollarsperday dollarspermonth usdperday usdpermonth monthlybudget",
        "write dollars_per_hour, the most that all machines may cost in one hour",
    ),
    ("vcpus cpus", "write quotas below providers.NAME.ec2, such as quotas: {G and VT: 64}"),
)

PROVIDER = table(
    ("type cloud", "write ec2 or kubernetes below it, with the provider's keys below that"),
    renamed("aws", "ec2"),
    renamed("k8s eks gke cluster", "kubernetes"),
)

SKU = table(
    (
        "min minrunners minidlerunners minreplicas minsize minavailable minimum warm warmpool poolsize",
        _READY,
    ),
    renamed(
        "max maxrunners maxreplicas maxsize maxavailable maxcount maximum limit limits machines "
        "runnersmaximumcount maxinstances",
        "max_machines",
    ),
    ("replicas count desired size", _DEPENDS),
    ("gpu gpus gpucount acceleratorcount gpuvendor", _GPUS, "accelerator"),
    ("spot capacitytype purchaseoption instancetargetcapacitytype marketoptions", _CAPACITY),
    ("instancetype machinetype instanceclass instance family flavor flavour types", _TYPES, "on"),
    ("ami amiid amifilter imageid imagename imageowner amiowners", _IMAGE, "image"),
    ("runnergroup runnergroupname group", _GROUP),
    (
        "labelsmatch labelmatchers matchlabels runson runnerlabels runnerextralabels extralabels",
        "write labels: the name of the SKU is a label already",
        "labels",
    ),
    ("disksize disk volumesize diskgib rootdisk", "write disk_gb, in GiB", "disk_gb"),
    ("ephemeral isephemeral enableephemeralrunners nonephemeral", _EPHEMERAL),
    ("cpu cpus vcpu vcpus ram memory memorygb resources", _RESOURCES),
    ("name", "remove it: its key below skus is the name of a SKU"),
    ("runnerconfig matcherconfig config", "write its keys directly below the name of the SKU"),
    (
        "idleconfig scheduledoverrides scaledownscheduleexpression",
        'write idle: {schedule: [{cron: "0 7 * * 1-5", for: 3h, min: NUMBER}]}',
        "idle",
    ),
    (
        "delaywebhookevent runnerprefix runnernameprefix prefix",
        "remove it: there is no such setting, and no need for it",
    ),
    _ZONES,
    (
        "userdata bootstrapscript preinstall postinstall startupscript script template",
        _SCRIPT,
        "boot_script_file",
    ),
    (
        "keyname sshkey ssh keypair",
        "remove it: machines get no SSH key; a script in boot_script_file can add one",
    ),
    ("enabled disabled", "remove it, or write max_machines: 0 for a SKU without machines"),
    ("boottimeout startuptimeout runnerbootstraptimeout", _BOOT),
    (
        "idletimeout scaledowndelay minimumrunningtimeinminutes scaledowndelaysecondsafterscaleout ttl",
        _TIMEOUT,
    ),
    renamed("maxlifetime jobtimeout maxruntime expireafter", "lifetime"),
    ("public", "write access: {public_repositories: false}"),
    (
        "env environment environmentvariables",
        "remove it: set variables in the workflow, or in the image",
    ),
    ("ostype operatingsystem platform", "write os: linux or os: windows", "os"),
    ("osarch architecture cpuarch cpuarchitecture", "write arch: x64 or arch: arm64", "arch"),
    ("githubconfigurl githubconfigsecret scaletargetref runnerscalesetname", _ARC),
    ("iaminstanceprofile", "write instance_profile below providers.NAME.ec2"),
    ("vpc vpcid subnet subnetid subnetids", "write subnets below providers.NAME.ec2"),
    ("securitygroup securitygroupids", "write security_groups below providers.NAME.ec2"),
)

LAUNCH_OPTION = table(
    ("name", "write provider, with a key of providers", "provider"),
    ("instancetype types machinetype", "write instance_types: [g5.xlarge]", "instance_types"),
    ("spot ondemand capacitytype", "write capacity: [spot, on-demand]", "capacity"),
    (
        "image ami amiid imageid",
        'write image: {name: "NAME-*"} in the SKU; for a pod write image below pod',
    ),
    ("min max count replicas", f"{_DEPENDS}, in the SKU"),
    _ZONES,
    ("weight priority", "remove it: the order of the entries of on is that of preference"),
    ("cpu memory resources", 'write resources: {cpu: "4", memory: 16Gi} below pod'),
    ("gpu gpus gpucount", f"{_GPUS} in the SKU"),
)

IMAGE = table(
    (
        "id ami amiid imageid filter ssm ssmparameter",
        "write name: images are found by their names, such as gpu-*, and the newest one is used",
        "name",
    ),
    ("owners ownerid ownerids account", "write owner"),
)

ACCELERATOR = table(
    ("type kind manufacturer", "write vendor: nvidia or vendor: amd", "vendor"),
    renamed("number gpus gpu", "count"),
    ("model name product", 'write models, such as models: ["NVIDIA A10G"]'),
    ("memory vram memorygib", "write memory_gb, in GiB"),
    ("driver", "write driver_version, or driver in the SKU"),
)

IDLE = table(
    ("max maxmachines", "write max_machines in the SKU"),
    ("minimum size count replicas machines", "write min"),
    ("cron schedules", 'write schedule: [{cron: "0 7 * * 1-5", for: 3h, min: NUMBER}]'),
)

WORDS: Mapping[str, str] = MappingProxyType(
    {
        "amd64": "x64",
        "x86_64": "x64",
        "x86-64": "x64",
        "intel": "x64",
        "aarch64": "arm64",
        "graviton": "arm64",
        "ubuntu": "linux",
        "debian": "linux",
        "amazon-linux": "linux",
        "al2023": "linux",
        "cuda": "nvidia",
        "rocm": "amd",
        "reserved": "capacity-block",
        "ondemand": "on-demand",
    }
)
"""Words of other tools for one of the words of a key."""
