# The host: its settings and programs, the launch template, and the group that keeps one of it alive, or two replicas.

locals {
  namespace   = "gpu-runner-autoscaler"
  backup      = "state.db.gz"
  database_ca = "database-ca.pem"
  data        = "/var/lib/gpu-runner-autoscaler"
  run         = "/run/gpu-runner-autoscaler"
  program     = "/usr/local/lib/gpu-runner-autoscaler/host.py"
  unit        = "gpu-runner-autoscaler"
  config      = "/etc/gpu-runner-autoscaler/fleet"
  mounts      = "-v ${local.run}:${local.config}:ro -v ${local.data}:${local.data}"
  last_backup = local.alone ? "\nExecStopPost=-${local.program} backup" : ""
  # host.py writes the file.
  environment = local.alone ? "" : " --env-file ${local.run}/replica.env"

  settings = {
    fleet  = var.fleet
    region = local.region
    replica = local.alone ? null : {
      certificate = var.replicas.certificate_secret_arn
      database_ca = local.database_ca
      port        = local.ports.machines.inside
    }
    volume    = one(aws_ebs_volume.store[*].id)
    devices   = "/dev/disk/by-id"
    bucket    = aws_s3_bucket.data.id
    backup    = local.backup
    data      = local.data
    run       = local.run
    user      = 65532
    secrets   = local.secrets
    namespace = local.namespace
    config    = local.config
    # As host.py calls them; the words of the command follow.
    autoscaler = ["/usr/local/lib/gpu-runner-autoscaler/autoscaler"]
    restart    = ["systemctl", "restart", "${local.unit}.service"]
  }

  autoscaler = <<-SCRIPT
    #!/bin/sh
    exec docker run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges ${local.mounts} ${var.image} "$@"
  SCRIPT

  # The metadata service has one hop, so only containers on the host's network reach the role's credentials.
  service = <<-UNIT
    [Unit]
    Description=Controller of the fleet ${var.fleet}
    Requires=docker.service ${local.unit}-host.service
    After=docker.service ${local.unit}-host.service

    [Service]
    ExecStartPre=-/usr/bin/docker rm --force ${local.unit}
    ExecStart=/usr/bin/docker run --rm --name ${local.unit} --network host --read-only --tmpfs /tmp --cap-drop ALL \
      --security-opt no-new-privileges --stop-timeout 60 --ulimit nofile=65536:65536 ${local.mounts}${local.environment} \
      --log-driver awslogs --log-opt awslogs-region=${local.region} --log-opt awslogs-group=${aws_cloudwatch_log_group.controller.name} \
      --log-opt mode=non-blocking ${var.image}
    ExecStop=/usr/bin/docker stop ${local.unit}${local.last_backup}
    Restart=always
    RestartSec=5
    TimeoutStopSec=120

    [Install]
    WantedBy=multi-user.target
  UNIT

  host = <<-UNIT
    [Unit]
    Description=Store, secrets and fleet.yaml of the controller
    Wants=network-online.target docker.service
    After=network-online.target docker.service

    [Service]
    Type=oneshot
    RemainAfterExit=yes
    ExecStart=${local.program} prepare
    Restart=on-failure
    RestartSec=10
    TimeoutStartSec=infinity
  UNIT

  timers = merge(local.alone ? { backup = "${var.backup_minutes}min" } : {}, { update = "1min" })

  files = concat(
    [
      { path = "/etc/gpu-runner-autoscaler/host.json", permissions = "0600", content = jsonencode(local.settings) },
      { path = local.program, permissions = "0755", content = file("${path.module}/host/host.py") },
      { path = local.settings.autoscaler[0], permissions = "0755", content = local.autoscaler },
      { path = "/etc/systemd/system/${local.unit}.service", permissions = "0644", content = local.service },
      { path = "/etc/systemd/system/${local.unit}-host.service", permissions = "0644", content = local.host },
      {
        path        = "/root/.docker/config.json"
        permissions = "0600"
        content     = jsonencode({ credHelpers = length(var.ecr_repository_arns) > 0 ? { split("/", var.image)[0] = "ecr-login" } : {} })
      },
    ],
    flatten([
      for name, every in local.timers : [
        {
          path        = "/etc/systemd/system/${local.unit}-${name}.service"
          permissions = "0644"
          content     = "[Unit]\nAfter=${local.unit}-host.service\n\n[Service]\nType=oneshot\nExecStart=${local.program} ${name}\n"
        },
        {
          path        = "/etc/systemd/system/${local.unit}-${name}.timer"
          permissions = "0644"
          content     = "[Timer]\nOnActiveSec=${every}\nOnUnitActiveSec=${every}\n\n[Install]\nWantedBy=timers.target\n"
        },
      ]
    ]),
  )

  cloud_config = {
    packages    = ["docker", "amazon-ecr-credential-helper"]
    write_files = local.files
    runcmd = [
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "docker.service"],
      ["systemctl", "start", "${local.unit}-host.service"],
      concat(["systemctl", "enable", "--now", "${local.unit}.service"], [for name in keys(local.timers) : "${local.unit}-${name}.timer"]),
    ]
  }
}

resource "aws_launch_template" "controller" {
  name                   = local.name
  description            = "The controller's host of the fleet ${var.fleet}"
  image_id               = coalesce(var.ami_id, "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-${var.architecture}")
  instance_type          = var.instance_type
  update_default_version = true
  user_data              = base64gzip("#cloud-config\n${yamlencode(local.cloud_config)}")
  vpc_security_group_ids = [aws_security_group.controller.id]
  tags                   = var.tags

  iam_instance_profile {
    name = aws_iam_instance_profile.controller.name
  }
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }
  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_size           = 20
      volume_type           = "gp3"
      encrypted             = true
      delete_on_termination = true
    }
  }
  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume"])
    content {
      resource_type = tag_specifications.value
      # The host may move the volume between instances with this tag.
      tags = merge(local.tags, { "gpu-runner-autoscaler:controller" = var.fleet })
    }
  }
}

resource "aws_autoscaling_group" "controller" {
  name                      = local.name
  min_size                  = local.alone ? 1 : 2
  max_size                  = local.alone ? 1 : 3
  vpc_zone_identifier       = concat([var.subnet_id], local.alone ? [] : [var.replicas.subnet_id])
  target_group_arns         = [for group in aws_lb_target_group.controller : group.arn]
  health_check_type         = "ELB"
  health_check_grace_period = 600
  wait_for_capacity_timeout = "0"

  launch_template {
    id      = aws_launch_template.controller.id
    version = aws_launch_template.controller.latest_version
  }
  # Alone, the group launches the new host while it terminates the old one, and `host.py prepare` waits for its end.
  # Replicas are replaced one by one: each new host is there, and healthy, before an old one ends. Jobs that run go on.
  instance_refresh {
    strategy = "Rolling"
    preferences {
      min_healthy_percentage = local.alone ? 0 : 100
      max_healthy_percentage = local.alone ? null : 150
    }
  }
  dynamic "tag" {
    for_each = local.tags
    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = false
    }
  }

  lifecycle {
    precondition {
      condition     = one(data.aws_subnet.second[*].availability_zone) != data.aws_subnet.host.availability_zone
      error_message = "replicas.subnet_id must be in another zone than subnet_id: the hosts must not be lost together."
    }
  }

  depends_on = [
    aws_iam_role_policy.host,
    aws_iam_role_policy_attachment.fleet,
    aws_s3_bucket_versioning.data,
    aws_s3_bucket_policy.data,
    aws_s3_bucket_server_side_encryption_configuration.data,
    aws_s3_object.database_ca,
    aws_vpc_security_group_egress_rule.controller,
  ]
}
