# A network load balancer with TLS: port 443 for GitHub's webhooks, port 8443 for machines, operators and Prometheus.
# Hosts have a certificate of their own, so the second hop is encrypted where tokens pass.

locals {
  ports = {
    webhooks = { outside = 443, inside = 8080, protocol = "TCP", cidrs = var.webhook_cidrs }
    machines = { outside = 8443, inside = 8443, protocol = "TLS", cidrs = var.machine_cidrs }
  }
  sources = merge([
    # By number: the addresses of NAT gateways are not known before they exist.
    for name, port in local.ports : { for number, cidr in port.cidrs : "${name} ${number}" => merge(port, { cidr = cidr }) }
  ]...)
}

resource "aws_security_group" "load_balancer" {
  name        = "${local.name}-load-balancer"
  description = "Load balancer of the controller of the fleet ${var.fleet}"
  vpc_id      = var.vpc_id
  tags        = merge(var.tags, { Name = "${local.name}-load-balancer" })
}

resource "aws_vpc_security_group_ingress_rule" "load_balancer" {
  for_each          = local.sources
  security_group_id = aws_security_group.load_balancer.id
  description       = each.key
  ip_protocol       = "tcp"
  from_port         = each.value.outside
  to_port           = each.value.outside
  cidr_ipv4         = each.value.cidr
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "load_balancer" {
  for_each                     = local.ports
  security_group_id            = aws_security_group.load_balancer.id
  description                  = "The controller: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.inside
  to_port                      = each.value.inside
  referenced_security_group_id = aws_security_group.controller.id
  tags                         = local.tags
}

resource "aws_security_group" "controller" {
  name        = local.name
  description = "Controller of the fleet ${var.fleet}"
  vpc_id      = var.vpc_id
  tags        = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "controller" {
  for_each                     = local.ports
  security_group_id            = aws_security_group.controller.id
  description                  = "The load balancer: ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.inside
  to_port                      = each.value.inside
  referenced_security_group_id = aws_security_group.load_balancer.id
  tags                         = local.tags
}

# A replica that does not lead passes requests on to the leader.
resource "aws_vpc_security_group_ingress_rule" "replicas" {
  count                        = local.alone ? 0 : 1
  security_group_id            = aws_security_group.controller.id
  description                  = "Another replica"
  ip_protocol                  = "tcp"
  from_port                    = local.ports.machines.inside
  to_port                      = local.ports.machines.inside
  referenced_security_group_id = aws_security_group.controller.id
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "controller" {
  security_group_id = aws_security_group.controller.id
  description       = "GitHub, AWS and registries"
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
  tags              = local.tags
}

resource "aws_lb" "controller" {
  #checkov:skip=CKV_AWS_91:The controller's log has the refused webhooks
  #checkov:skip=CKV_AWS_150:It holds nothing, and terraform destroy must be able to delete it
  name               = local.name
  load_balancer_type = "network"
  internal           = var.internal
  subnets            = var.load_balancer_subnet_ids
  security_groups    = [aws_security_group.load_balancer.id]
  tags               = var.tags

  # A host serves every zone in which the load balancer has an address.
  enable_cross_zone_load_balancing = true
}

resource "aws_lb_target_group" "controller" {
  for_each             = local.ports
  name                 = "${var.fleet}-${each.key}"
  port                 = each.value.inside
  protocol             = each.value.protocol
  vpc_id               = var.vpc_id
  deregistration_delay = 30
  tags                 = var.tags

  # Not /readyz: the group replaces a host that fails. An outage of GitHub or of the database is no reason for that.
  health_check {
    protocol = "HTTPS"
    port     = "8443"
    path     = "/healthz"
    interval = 10
    # A restart, such as after a change of fleet.yaml, must not get the host replaced. It takes up to 60 s to stop.
    unhealthy_threshold = 10
  }
}

resource "aws_lb_listener" "controller" {
  for_each          = local.ports
  load_balancer_arn = aws_lb.controller.arn
  port              = each.value.outside
  protocol          = "TLS"
  certificate_arn   = var.certificate_arn
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  tags              = var.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.controller[each.key].arn
  }
}

resource "aws_route53_record" "controller" {
  count   = var.zone_id == null ? 0 : 1
  zone_id = var.zone_id
  name    = var.domain_name
  type    = "A"

  alias {
    name                   = aws_lb.controller.dns_name
    zone_id                = aws_lb.controller.zone_id
    evaluate_target_health = false
  }
}
