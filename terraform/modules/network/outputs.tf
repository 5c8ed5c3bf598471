output "vpc_id" {
  description = "The ID of the VPC."
  value       = aws_vpc.fleet.id
}

output "zones" {
  description = "The zones, in order of preference."
  value       = local.zones
}

output "private_subnet_ids" {
  description = "The subnets of the machines, in the order of `zones`: `subnets` of the provider in fleet.yaml."
  value       = [for zone in local.zones : aws_subnet.private[zone].id]

  # A machine in a subnet without its route misses its boot deadline.
  depends_on = [aws_route.nat, aws_route_table_association.private]
}

output "public_subnet_ids" {
  description = "The subnets of the load balancer, in the order of `zones`."
  value       = [for zone in local.zones : aws_subnet.public[zone].id]

  depends_on = [aws_route.internet, aws_route_table_association.public]
}

output "nat_addresses" {
  description = "The public addresses from which machines connect, as CIDR blocks: the controller's load balancer sees these."
  value       = [for address in aws_eip.nat : "${address.public_ip}/32"]
}
