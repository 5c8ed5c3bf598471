mock_provider "aws" {}

variables {
  fleet      = "ci-gpu"
  bucket     = "ci-gpu-1"
  public_url = "https://fleet.example.com:8443"
  github     = { app_id = 1234, scopes = [{ org = "acme", runner_group = "gpu" }] }
  limits     = { machines = 10 }
  providers_ec2 = {
    us-east-1 = { region = "us-east-1", subnets = ["subnet-0a"], security_groups = ["sg-0a"] }
  }
  skus = {
    linux   = { on = [{ provider = "us-east-1", instance_types = ["m7i.large"], capacity = ["spot"] }], disk_gb = 50 }
    windows = { on = [{ provider = "us-east-1", instance_types = ["m7i.large"] }], os = "windows" }
  }
}

run "keys_without_a_value_are_left_out" {
  command = plan

  assert {
    condition     = keys(yamldecode(output.fleet_yaml).providers.us-east-1.ec2) == ["region", "security_groups", "subnets"]
    error_message = "fleet.yaml must have no null."
  }
  assert {
    condition     = yamldecode(output.fleet_yaml).limits == { machines = 10 }
    error_message = "Limits without a value must be left out."
  }
}

run "skus_are_passed_on_as_they_are" {
  command = plan

  assert {
    condition     = jsonencode(yamldecode(output.fleet_yaml).skus) == jsonencode(var.skus)
    error_message = "SKUs of different keys must stay as they are."
  }
}

run "mistakes_are_named_before_anything_is_made" {
  command = plan
  variables {
    github = { app_id = 1234, scopes = [{ org = "acme", repo = "acme/widgets" }] }
    limits = {}
    skus   = { linux = { on = [{ provider = "eu-west-1", instance_types = ["m7i.large"] }] } }
  }
  expect_failures = [var.github, var.limits, var.skus]
}

run "a_file_that_the_host_does_not_get" {
  command = plan
  variables {
    skus = { linux = { on = [{ provider = "us-east-1", instance_types = ["m7i.large"] }], boot_script_file = "boot.sh" } }
  }
  expect_failures = [var.skus]
}

run "a_store_on_postgresql" {
  command = plan
  variables {
    store = "postgresql://autoscaler@db.example.com:5432/autoscaler?sslmode=verify-full&iam_region=us-east-1"
  }

  assert {
    condition     = yamldecode(output.fleet_yaml).store == "postgresql://autoscaler@db.example.com:5432/autoscaler?sslmode=verify-full&iam_region=us-east-1"
    error_message = "The URL must be passed on as it is."
  }
}

run "a_store_with_a_password" {
  command = plan
  variables {
    store = "postgresql://autoscaler:hunter2@db.example.com/autoscaler"
  }
  expect_failures = [var.store]
}

run "no_store_is_the_file_of_the_host" {
  command = plan
  variables {
    store = null
  }

  assert {
    condition     = startswith(yamldecode(output.fleet_yaml).store, "sqlite:////var/lib/")
    error_message = "A host alone has its store on its volume."
  }
}

run "a_store_in_memory" {
  command = plan
  variables {
    store = "sqlite:///:memory:"
  }
  expect_failures = [var.store]
}

run "a_store_in_a_folder_of_the_container" {
  command = plan
  variables {
    store = "sqlite:///state.db"
  }
  expect_failures = [var.store]
}

run "a_store_that_is_a_folder" {
  command = plan
  variables {
    store = "sqlite:////var/lib/gpu-runner-autoscaler/"
  }
  expect_failures = [var.store]
}
