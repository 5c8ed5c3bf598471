mock_provider "aws" {
  mock_resource "aws_db_instance" {
    defaults = {
      arn                = "arn:aws-us-gov:rds:us-gov-west-1:123456789012:db:ci-gpu-store"
      resource_id        = "db-ABCDEFGHIJKL01234"
      address            = "ci-gpu-store.example.us-east-1.rds.amazonaws.com"
      master_user_secret = [{ secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:rds", kms_key_id = "", secret_status = "active" }]
    }
  }
}

variables {
  fleet                     = "ci-gpu"
  vpc_id                    = "vpc-0123456789abcdef0"
  subnet_ids                = ["subnet-0123456789abcdef0", "subnet-0fedcba9876543210"]
  client_security_group_ids = ["sg-0123456789abcdef0"]
}

run "a_failover_loses_nothing_and_nothing_is_readable_on_the_way_or_at_rest" {
  command = plan

  assert {
    condition     = aws_db_instance.store.multi_az
    error_message = "The standby of Multi-AZ is synchronous."
  }
  assert {
    condition     = aws_db_instance.store.storage_encrypted && !aws_db_instance.store.publicly_accessible
    error_message = "The storage must be encrypted, and the database private."
  }
  assert {
    condition     = { for one in aws_db_parameter_group.store.parameter : one.name => one.value }["rds.force_ssl"] == "1"
    error_message = "Sessions without TLS must be refused."
  }
  assert {
    condition     = aws_db_instance.store.manage_master_user_password
    error_message = "Terraform's state must have no password."
  }
}

run "only_the_replicas_reach_it" {
  command = plan

  assert {
    condition     = { for number, rule in aws_vpc_security_group_ingress_rule.store : number => [rule.referenced_security_group_id, rule.from_port, rule.to_port] } == { "0" = ["sg-0123456789abcdef0", 5432, 5432] }
    error_message = "One rule for each group, for PostgreSQL's port."
  }
}

run "the_data_outlives_a_mistake" {
  command = plan

  assert {
    condition     = aws_db_instance.store.deletion_protection && !aws_db_instance.store.skip_final_snapshot && aws_db_instance.store.backup_retention_period == 7
    error_message = "Without destroy_data, the database is protected and backed up."
  }
  assert {
    condition     = aws_db_instance.store.max_allocated_storage > aws_db_instance.store.allocated_storage
    error_message = "The storage must grow."
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.storage.threshold == 1024 * 1024 * 1024
    error_message = "A twentieth of 20 GiB."
  }
}

run "data_can_be_destroyed_on_purpose" {
  command = plan
  variables {
    destroy_data = true
  }

  assert {
    condition     = !aws_db_instance.store.deletion_protection && aws_db_instance.store.skip_final_snapshot
    error_message = "destroy_data must let terraform destroy end."
  }
}

run "the_store_of_fleet_yaml_checks_the_certificate" {
  assert {
    condition     = startswith(output.store, "postgresql://autoscaler@ci-gpu-store.example.us-east-1.rds.amazonaws.com:5432/autoscaler?sslmode=verify-full&")
    error_message = "The URL must have the name in the certificate."
  }
  assert {
    condition     = startswith(output.store_of_hosts, "postgresql://autoscaler@ci-gpu-store.example.us-east-1.rds.amazonaws.com:5432/autoscaler?sslmode=verify-full&") && endswith(output.store_of_hosts, "&iam_region=us-gov-west-1")
    error_message = "Hosts sign in with their role, in the region of the database."
  }
  assert {
    condition     = output.user_arn == "arn:aws-us-gov:rds-db:us-gov-west-1:123456789012:dbuser:db-ABCDEFGHIJKL01234/autoscaler" && aws_db_instance.store.iam_database_authentication_enabled
    error_message = "IAM knows a database by its resource ID, and a user by the name in the database."
  }
  assert {
    condition     = output.master_user_secret_arn == "arn:aws:secretsmanager:us-east-1:123456789012:secret:rds"
    error_message = "The secret is that of RDS."
  }
}

run "mistakes_are_named" {
  command = plan
  variables {
    subnet_ids                = ["subnet-0123456789abcdef0"]
    client_security_group_ids = []
    engine_version            = "13.4"
    max_storage_gb            = 20
    backup_days               = 0
    alarm_actions             = ["team@example.com"]
    fleet                     = "ci--gpu"
  }
  expect_failures = [var.subnet_ids, var.client_security_group_ids, var.engine_version, var.max_storage_gb, var.backup_days, var.alarm_actions, var.fleet]
}
