# The machine images for Linux: a stock Ubuntu, and the steps of a recipe on it. `autoscaler images bake` gives it
# its values from versions.yaml; docs/images.md explains the others. Packer 1.6.6 and later read it. Packer 1.8 and
# later need the plugin of ../plugins first.

variable "recipe" {
  type        = string
  description = "Which steps to run: the name of a file in recipes/."
}

variable "image_name" {
  type        = string
  description = "The name of the new image."
}

variable "image_set" {
  type        = string
  description = "The image set: `autoscaler images prune` deletes only images of one set."
}

variable "source_name" {
  type        = string
  description = "The name of the stock image."
}

variable "source_owner" {
  type        = string
  description = "The account that owns the stock image."
}

variable "runner_version" {
  type = string
}

variable "runner_url" {
  type = string
}

variable "runner_sha256" {
  type = string
}

variable "agent_file" {
  type        = string
  description = "The agent in one file, as the controller serves it."
}

variable "agent_sha256" {
  type = string
}

variable "driver_plan" {
  type        = string
  default     = ""
  description = "What `autoscaler images driver` printed, for linux-gpu and linux-rocm."
}

variable "region" {
  type = string
}

variable "instance_type" {
  type        = string
  description = "The type of the build machine. Its architecture is that of the image."
}

variable "subnet_id" {
  type        = string
  description = "The subnet of the build machine. It must reach the internet."
}

variable "disk_gb" {
  type    = number
  default = 30
}

variable "root_device" {
  type    = string
  default = "/dev/sda1"
}

variable "ssh_username" {
  type    = string
  default = "ubuntu"
}

variable "ssh_interface" {
  type        = string
  default     = "private_ip"
  description = "public_ip, if Packer runs outside of the VPC."
}

variable "source_cidrs" {
  type        = list(string)
  default     = ["0.0.0.0/0"]
  description = "From which addresses the build machine accepts SSH while it is built."
}

# The next six are for a build against another EC2 than AWS's, such as a test's.
variable "endpoint" {
  type    = string
  default = ""
}

variable "ssh_host" {
  type    = string
  default = ""
}

variable "ssh_port" {
  type    = number
  default = 22
}

variable "ssh_keypair_name" {
  type    = string
  default = ""
}

variable "ssh_private_key_file" {
  type    = string
  default = ""
}

variable "poll_seconds" {
  type    = number
  default = 10
}

source "amazon-ebs" "linux" {
  region                      = var.region
  custom_endpoint_ec2         = var.endpoint
  skip_region_validation      = var.endpoint != ""
  skip_metadata_api_check     = var.endpoint != ""
  instance_type               = var.instance_type
  subnet_id                   = var.subnet_id
  associate_public_ip_address = var.ssh_interface == "public_ip"

  source_ami_filter {
    filters = {
      name                = var.source_name
      root-device-type    = "ebs"
      virtualization-type = "hvm"
    }
    owners      = [var.source_owner]
    most_recent = true
  }

  launch_block_device_mappings {
    device_name           = var.root_device
    volume_size           = var.disk_gb
    volume_type           = "gp3"
    iops                  = 3000
    throughput            = 125
    delete_on_termination = true
  }

  communicator = "ssh"
  # A machine that is gone without a word: Packer asks for a sign of life every 5 s, and fails without any for so long.
  ssh_read_write_timeout                = "5m"
  ssh_username                          = var.ssh_username
  ssh_interface                         = var.ssh_interface
  ssh_host                              = var.ssh_host
  ssh_port                              = var.ssh_port
  ssh_keypair_name                      = var.ssh_keypair_name
  ssh_private_key_file                  = var.ssh_private_key_file
  temporary_security_group_source_cidrs = var.source_cidrs
  # A build that is interrupted must not leave a machine that costs money.
  shutdown_behavior = "terminate"

  aws_polling {
    delay_seconds = var.poll_seconds
    max_attempts  = 360
  }

  # The prefix hides the image from fleets until `autoscaler images publish` has tested it.
  # No `ami_description`: it needs ec2:ModifyImageAttribute, with which an image can be given to anyone. The tags say it.
  ami_name        = "autoscaler/${var.image_name}"
  run_tags        = { "autoscaler:image-set" = var.image_set, Name = "build of ${var.image_name}" }
  run_volume_tags = { "autoscaler:image-set" = var.image_set, Name = "build of ${var.image_name}" }
  # Packer gives them to the snapshot, too.
  tags = {
    Name                      = var.image_name
    "autoscaler:image-set"    = var.image_set
    "autoscaler:image-recipe" = var.recipe
    "autoscaler:image-base"   = var.source_name
    "autoscaler:image-runner" = var.runner_version
    "autoscaler:image-agent"  = var.agent_sha256
  }
}

build {
  sources = ["source.amazon-ebs.linux"]

  provisioner "shell" {
    inline = [
      # User data of the stock image may still hold apt's lock.
      "if command -v cloud-init > /dev/null; then timeout 600 cloud-init status --wait > /dev/null || true; fi",
      "mkdir -p /tmp/image-build",
    ]
  }

  provisioner "file" {
    source      = "${path.root}/"
    destination = "/tmp/image-build"
  }

  provisioner "file" {
    source      = var.agent_file
    destination = "/tmp/image-build/agent.py"
  }

  provisioner "file" {
    source      = var.driver_plan != "" ? var.driver_plan : "${path.root}/files/no-driver.json"
    destination = "/tmp/image-build/driver.json"
  }

  provisioner "shell" {
    environment_vars = [
      "IMAGE_RECIPE=${var.recipe}",
      "BASE_IMAGE=${var.source_name}",
      "RUNNER_VERSION=${var.runner_version}",
      "RUNNER_URL=${var.runner_url}",
      "RUNNER_SHA256=${var.runner_sha256}",
      "AGENT_SHA256=${var.agent_sha256}",
    ]
    # -e: a failed line ends the script, and so the build, before there is an image.
    execute_command = "sudo -n env {{ .Vars }} bash -e {{ .Path }}"
    inline = [
      "bash /tmp/image-build/provision.sh",
      "rm -rf /tmp/image-build",
    ]
  }
}
