# The machine images for Windows: a stock Windows Server with EC2Launch v2, and the steps of a recipe on it.
# `autoscaler images bake` gives it its values from versions.yaml; docs/images.md explains the others. Packer 1.6.6
# and later read it. Packer 1.8 and later need the plugin of ../plugins first.

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

variable "python_version" {
  type = string
}

variable "python_url" {
  type = string
}

variable "python_sha256" {
  type = string
}

variable "git_version" {
  type = string
}

variable "git_url" {
  type = string
}

variable "git_sha256" {
  type = string
}

variable "vc_redist_url" {
  type = string
}

variable "vc_redist_sha256" {
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
  description = "What `autoscaler images driver --os windows` printed, for windows-gpu."
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
  default = 50
}

variable "root_device" {
  type    = string
  default = "/dev/sda1"
}

variable "ssh_username" {
  type    = string
  default = "Administrator"
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

source "amazon-ebs" "windows" {
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

  # Windows has an SSH server, and EC2Launch v2 can enable it.
  user_data_file = "${path.root}/enable-ssh.yml"
  communicator   = "ssh"
  # Windows' own scp ends with an error after it has written a file (hashicorp/packer-plugin-amazon#305).
  ssh_file_transfer_method = "sftp"
  # A machine that is gone without a word: Packer asks for a sign of life every 5 s, and fails without any for so long.
  ssh_read_write_timeout = "5m"
  # The first boot of Windows takes minutes.
  ssh_timeout                           = "30m"
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
  sources = ["source.amazon-ebs.windows"]

  provisioner "windows-shell" {
    inline = ["if not exist C:\\image-build mkdir C:\\image-build"]
  }

  provisioner "file" {
    source      = "${path.root}/"
    destination = "C:/image-build"
  }

  provisioner "file" {
    source      = var.agent_file
    destination = "C:/image-build/agent.py"
  }

  provisioner "file" {
    source      = var.driver_plan != "" ? var.driver_plan : "${path.root}/files/no-driver.json"
    destination = "C:/image-build/driver.json"
  }

  provisioner "windows-shell" {
    environment_vars = [
      "IMAGE_RECIPE=${var.recipe}",
      "BASE_IMAGE=${var.source_name}",
      "PYTHON_VERSION=${var.python_version}",
      "PYTHON_URL=${var.python_url}",
      "PYTHON_SHA256=${var.python_sha256}",
      "VC_REDIST_URL=${var.vc_redist_url}",
      "VC_REDIST_SHA256=${var.vc_redist_sha256}",
      "GIT_VERSION=${var.git_version}",
      "GIT_URL=${var.git_url}",
      "GIT_SHA256=${var.git_sha256}",
      "RUNNER_VERSION=${var.runner_version}",
      "RUNNER_URL=${var.runner_url}",
      "RUNNER_SHA256=${var.runner_sha256}",
      "AGENT_SHA256=${var.agent_sha256}",
    ]
    # A line that fails ends the script, and so the build, before there is an image.
    inline = [
      "@echo off",
      "powershell -NoLogo -NoProfile -NonInteractive -ExecutionPolicy Bypass -File C:\\image-build\\bring-python.ps1",
      "if not %ERRORLEVEL%==0 exit /b 1",
      "C:\\runner-agent\\python\\python.exe -I -B C:\\image-build\\provision.py",
      "if not %ERRORLEVEL%==0 exit /b 1",
    ]
  }
}
