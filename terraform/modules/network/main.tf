# An optional VPC: a private subnet for machines in each zone that sells at least one of the wanted instance types,
# and a public subnet beside it for the NAT gateway and the load balancer.

data "aws_ec2_instance_type_offerings" "wanted" {
  for_each      = var.instance_types
  location_type = "availability-zone"
  filter {
    name   = "instance-type"
    values = [each.value]
  }
}

data "aws_region" "here" {}

locals {
  # Only availability zones: not local zones such as us-east-1-bos-1a, where NAT gateways and many types are missing.
  sold = {
    for type, found in data.aws_ec2_instance_type_offerings.wanted :
    type => [for zone in found.locations : zone if can(regex("^[a-z]+(-[a-z]+)+-[0-9]+[a-z]$", zone))]
  }
  # Zones that sell more of the types come first; then by name.
  ranked = sort(distinct(flatten(values(local.sold))))
  ordered = flatten([
    for count in range(length(var.instance_types), 0) : [
      for zone in local.ranked : zone if length([for zones in values(local.sold) : true if contains(zones, zone)]) == count
    ]
  ])
  zones   = length(var.zones) > 0 ? var.zones : slice(local.ordered, 0, min(var.max_zones, length(local.ordered)))
  private = { for number, zone in local.zones : zone => cidrsubnet(var.cidr, 3, number) }
  public  = { for number, zone in local.zones : zone => cidrsubnet(cidrsubnet(var.cidr, 3, 7), 4, number) }
  nat     = var.nat == "none" ? [] : var.nat == "single" ? slice(local.zones, 0, 1) : local.zones
  tags    = merge(var.tags, { Name = var.name })
}

resource "aws_vpc" "fleet" {
  #checkov:skip=CKV2_AWS_11:Flow logs cost by size, and jobs transfer a lot; add aws_flow_log for vpc_id where you need it
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = local.tags

  lifecycle {
    precondition {
      condition     = length(local.zones) > 0
      error_message = "No zone of this region sells any of ${join(", ", var.instance_types)}. Choose other instance_types or another region."
    }
    precondition {
      condition     = alltrue([for zones in values(local.sold) : length(setintersection(zones, local.zones)) > 0])
      error_message = "None of the zones ${join(", ", local.zones)} sells ${join(", ", [for type, zones in local.sold : type if length(setintersection(zones, local.zones)) == 0])}. Raise max_zones, name other zones, or leave out the type."
    }
  }
}

# Without rules: what is in the VPC and names no group can reach nothing.
resource "aws_default_security_group" "fleet" {
  vpc_id = aws_vpc.fleet.id
  tags   = local.tags
}

resource "aws_internet_gateway" "fleet" {
  vpc_id = aws_vpc.fleet.id
  tags   = local.tags
}

resource "aws_subnet" "private" {
  for_each          = local.private
  vpc_id            = aws_vpc.fleet.id
  availability_zone = each.key
  cidr_block        = each.value
  tags              = merge(var.tags, { Name = "${var.name}-private-${each.key}" })
}

resource "aws_subnet" "public" {
  for_each          = local.public
  vpc_id            = aws_vpc.fleet.id
  availability_zone = each.key
  cidr_block        = each.value
  tags              = merge(var.tags, { Name = "${var.name}-public-${each.key}" })
}

resource "aws_route_table" "public" {
  vpc_id = aws_vpc.fleet.id
  tags   = merge(var.tags, { Name = "${var.name}-public" })
}

resource "aws_route" "internet" {
  route_table_id         = aws_route_table.public.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.fleet.id
}

resource "aws_route_table_association" "public" {
  for_each       = local.public
  subnet_id      = aws_subnet.public[each.key].id
  route_table_id = aws_route_table.public.id
}

resource "aws_eip" "nat" {
  for_each = toset(local.nat)
  domain   = "vpc"
  tags     = merge(var.tags, { Name = "${var.name}-nat-${each.key}" })
}

resource "aws_nat_gateway" "nat" {
  for_each      = toset(local.nat)
  allocation_id = aws_eip.nat[each.key].id
  subnet_id     = aws_subnet.public[each.key].id
  tags          = merge(var.tags, { Name = "${var.name}-${each.key}" })

  depends_on = [aws_route.internet]
}

resource "aws_route_table" "private" {
  for_each = local.private
  vpc_id   = aws_vpc.fleet.id
  tags     = merge(var.tags, { Name = "${var.name}-private-${each.key}" })
}

resource "aws_route" "nat" {
  for_each               = length(local.nat) == 0 ? {} : local.private
  route_table_id         = aws_route_table.private[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.nat[var.nat == "single" ? local.nat[0] : each.key].id
}

resource "aws_route_table_association" "private" {
  for_each       = local.private
  subnet_id      = aws_subnet.private[each.key].id
  route_table_id = aws_route_table.private[each.key].id
}

# Free of charge, and jobs read a lot from S3.
resource "aws_vpc_endpoint" "s3" {
  vpc_id            = aws_vpc.fleet.id
  service_name      = "com.amazonaws.${data.aws_region.here.name}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for table in aws_route_table.private : table.id]
  tags              = local.tags
}
