variable "fleet" {
  type        = string
  description = "Name of the fleet, as `fleet` of fleet.yaml."

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,19}[a-z0-9])?$", var.fleet)) && !startswith(var.fleet, "internal-")
    error_message = "fleet must have 1 to 21 lower-case letters, digits and hyphens, and begin and end with a letter or digit, such as \"ci-gpu\", and not begin with \"internal-\": the load balancer is named after the fleet, and AWS allows 32 characters."
  }
}

variable "vpc_id" {
  type        = string
  description = "The VPC of the host and its load balancer."

  validation {
    condition     = can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "vpc_id must be the ID of a VPC, such as \"vpc-0123456789abcdef0\"."
  }
}

variable "subnet_id" {
  type        = string
  description = "The subnet of the host. Its zone has the volume with the store: another zone gets a new volume, and the newest backup."

  validation {
    condition     = can(regex("^subnet-[0-9a-f]+$", var.subnet_id))
    error_message = "subnet_id must be the ID of a subnet, such as \"subnet-0123456789abcdef0\"."
  }
}

variable "replicas" {
  type = object({
    subnet_id              = string
    certificate_secret_arn = string
    database_user_arn      = string
    database_ca_pem        = string
  })
  default     = null
  description = "Run two hosts, which are replicas with a store on PostgreSQL: the subnet of the second host, in another zone; Secrets Manager's secret with the hosts' certificate for `domain_name` and its private key; `user_arn` of the module `database`; and the text of Amazon's CA certificates. By default, there is one host with its store on a volume."

  validation {
    condition     = var.replicas == null || can(regex("^subnet-[0-9a-f]+$", var.replicas.subnet_id))
    error_message = "replicas.subnet_id must be the ID of a subnet in another zone than subnet_id, such as \"subnet-0fedcba9876543210\"."
  }
  validation {
    condition     = var.replicas == null || can(regex("^arn:[^:]+:secretsmanager:[^:]+:[0-9]{12}:secret:[^*?]+$", var.replicas.certificate_secret_arn))
    error_message = "replicas.certificate_secret_arn must be the ARN of a secret of Secrets Manager, without wildcards."
  }
  validation {
    condition     = var.replicas == null || can(regex("^arn:[^:]+:rds-db:[^:]+:[0-9]{12}:dbuser:[^/*?]+/[^/*?]+$", var.replicas.database_user_arn))
    error_message = "replicas.database_user_arn must be the ARN of one user of one database, such as \"arn:aws:rds-db:us-east-1:123456789012:dbuser:db-ABCDEFGHIJKL01234/autoscaler\"."
  }
  validation {
    condition     = var.replicas == null || can(regex("-----BEGIN CERTIFICATE-----", var.replicas.database_ca_pem)) && !can(regex("PRIVATE KEY", var.replicas.database_ca_pem))
    error_message = "replicas.database_ca_pem must be the text of the CA certificates, such as file(\"database-ca.pem\"), without a private key."
  }
}

variable "load_balancer_subnet_ids" {
  type        = list(string)
  description = "The subnets of the load balancer: public ones unless it is internal."

  validation {
    condition     = length(var.load_balancer_subnet_ids) > 0
    error_message = "load_balancer_subnet_ids must name at least one subnet."
  }
}

variable "internal" {
  type        = bool
  default     = false
  description = "Give the load balancer private addresses only. GitHub must then reach port 443 in another way."
}

variable "domain_name" {
  type        = string
  description = "The name under which machines and GitHub reach the controller."

  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.domain_name))
    error_message = "domain_name must be a host name, such as \"fleet.example.com\", without https://."
  }
}

variable "certificate_arn" {
  type        = string
  description = "The ACM certificate of `domain_name`."

  validation {
    condition     = can(regex("^arn:[^:]+:acm:", var.certificate_arn))
    error_message = "certificate_arn must be the ARN of a certificate of ACM in the region of the load balancer."
  }
}

variable "zone_id" {
  type        = string
  default     = null
  description = "The Route 53 zone in which the module creates the record of `domain_name`. By default, it creates none."

  validation {
    condition     = var.zone_id == null || can(regex("^Z[A-Z0-9]+$", var.zone_id))
    error_message = "zone_id must be the ID of a hosted zone of Route 53, such as \"Z0123456789ABCDEFGHIJ\", not its name."
  }
}

variable "webhook_cidrs" {
  type        = list(string)
  default     = ["0.0.0.0/0"]
  description = "The addresses that may connect to port 443, which serves /webhook alone. By default all: GitHub signs each delivery, and its addresses change (`hooks` of https://api.github.com/meta)."

  validation {
    condition     = alltrue([for one in var.webhook_cidrs : can(cidrnetmask(one))])
    error_message = "webhook_cidrs must be IPv4 CIDR blocks, such as \"10.0.0.0/8\"."
  }
}

variable "machine_cidrs" {
  type        = list(string)
  description = "The addresses that may connect to port 8443: those of machines (of their NAT gateways, if the load balancer is not internal), operators and Prometheus."

  validation {
    condition     = alltrue([for one in var.machine_cidrs : can(cidrnetmask(one))])
    error_message = "machine_cidrs must be IPv4 CIDR blocks, such as \"10.0.0.0/8\"."
  }

  validation {
    condition     = !contains(var.machine_cidrs, "0.0.0.0/0")
    error_message = "machine_cidrs must not be 0.0.0.0/0: port 8443 serves /admin and the machines' registrations."
  }
}

variable "image" {
  type        = string
  description = "The container image of the controller, with its tag or digest: `autoscaler images build controller` builds it."

  validation {
    condition     = can(regex("^[^ ]+(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$", var.image))
    error_message = "image must have a tag or a digest, such as \"registry.example.com/gpu-runner-autoscaler:0.1.0\"."
  }
}

variable "ecr_repository_arns" {
  type        = list(string)
  default     = []
  description = "The ECR repositories with `image`, if it is in ECR."

  validation {
    condition     = alltrue([for one in var.ecr_repository_arns : can(regex("^arn:[^:]+:ecr:[^:]+:[0-9]{12}:repository/[^*?]+$", one))])
    error_message = "ecr_repository_arns must be ARNs of repositories of ECR, without wildcards, such as \"arn:aws:ecr:us-east-1:123456789012:repository/gpu-runner-autoscaler\"."
  }
}

variable "instance_type" {
  type        = string
  default     = "m7i.large"
  description = "The instance type of the host. docs/deploy.md has the memory that the controller needs."

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]*\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type must be an instance type, such as \"m7i.large\"."
  }
}

variable "architecture" {
  type        = string
  default     = "x86_64"
  description = "The architecture of `instance_type` and `image`: `x86_64` or `arm64`."

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "architecture must be \"x86_64\" or \"arm64\"."
  }
}

variable "ami_id" {
  type        = string
  default     = null
  description = "The machine image of the host: one of Amazon Linux 2023. By default, the newest one at each start."

  validation {
    condition     = var.ami_id == null || can(regex("^ami-[0-9a-f]+$", var.ami_id))
    error_message = "ami_id must be the ID of an image, such as \"ami-0123456789abcdef0\"."
  }
}

variable "secret_arns" {
  type = object({
    github_app_private_key = string
    webhook_secret         = string
    admin_token            = string
    metrics_token          = string
  })
  description = "Secrets Manager's secrets with the App's private key, the webhook secret, the file of operators' tokens (lines `NAME ROLE TOKEN`) and the token for metrics (`openssl rand -hex 32`), each as plain text. Their values are never in Terraform's state."

  validation {
    condition     = alltrue([for arn in values(var.secret_arns) : can(regex("^arn:[^:]+:secretsmanager:", arn))])
    error_message = "secret_arns must be ARNs of secrets of Secrets Manager."
  }
}

variable "secret_key_arns" {
  type        = list(string)
  default     = []
  description = "Customer-managed KMS keys of the secrets."

  validation {
    condition     = alltrue([for one in var.secret_key_arns : can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/[^*?]+$", one))])
    error_message = "secret_key_arns must be ARNs of KMS keys, not of aliases, and without wildcards."
  }
}

variable "policy_arns" {
  type        = map(string)
  description = "The controller's policies, by a name of your choice: `policy_arn` of the module `permissions` for each region."

  validation {
    condition     = length(var.policy_arns) > 0 && length(var.policy_arns) <= 10
    error_message = "policy_arns must have 1 to 10 policies, which is what IAM allows for a role."
  }
}

variable "permissions_boundary_arn" {
  type        = string
  default     = null
  description = "The permissions boundary of the host's role."

  validation {
    condition     = var.permissions_boundary_arn == null || can(regex("^arn:[^:]+:iam::[^:]*:policy/.+$", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn must be the ARN of a managed policy."
  }
}

variable "volume_gb" {
  type        = number
  default     = 20
  description = "The size of the volume with the store. Its file system grows when the host starts."

  validation {
    condition     = var.volume_gb >= 8 && var.volume_gb <= 1024
    error_message = "volume_gb must be from 8 to 1024."
  }
}

variable "volume_key_arn" {
  type        = string
  default     = null
  description = "A customer-managed KMS key of the volume and the bucket. By default, AWS's keys."

  validation {
    condition     = var.volume_key_arn == null || can(regex("^arn:[^:]+:kms:[^:]+:[0-9]{12}:key/[^*?]+$", var.volume_key_arn))
    error_message = "volume_key_arn must be the ARN of a KMS key, not of an alias."
  }
}

variable "backup_minutes" {
  type        = number
  default     = 5
  description = "Minutes between two backups of the store."

  validation {
    condition     = var.backup_minutes >= 1 && var.backup_minutes <= 60 && floor(var.backup_minutes) == var.backup_minutes
    error_message = "backup_minutes must be a whole number from 1 to 60."
  }
}

variable "backup_days" {
  type        = number
  default     = 7
  description = "Days for which S3 keeps earlier backups."

  validation {
    condition     = var.backup_days >= 1
    error_message = "backup_days must be at least 1."
  }
}

variable "destroy_data" {
  type        = bool
  default     = false
  description = "Let `destroy` delete the store without a last snapshot, and all backups. By default it refuses to delete the bucket."
}

variable "log_days" {
  type        = number
  default     = 90
  description = "Days for which CloudWatch keeps the controller's log."

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_days)
    error_message = "log_days must be one of the numbers that CloudWatch takes: 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653."
  }
}

variable "tags" {
  type        = map(string)
  default     = {}
  description = "Tags of everything that the module creates."

  validation {
    condition     = alltrue([for key in keys(var.tags) : !startswith(key, "autoscaler:")])
    error_message = "Keys of tags must not begin with \"autoscaler:\": the controller may delete what has its tags."
  }
}
