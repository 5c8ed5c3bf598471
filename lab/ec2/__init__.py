"""EC2 on loopback: moto behind a front that adds what moto lacks. Start at `service.LabEc2`."""
