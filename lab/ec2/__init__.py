"""EC2 on loopback: moto behind a proxy (the front) that adds what moto lacks. Start at `service.LabEc2`."""
