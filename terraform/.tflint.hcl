# All rules that are built into tflint. Those for AWS are a plugin that its maker publishes on GitHub alone.

plugin "terraform" {
  enabled = true
  preset  = "all"
}

# An example is read from top to bottom, so a small one is one file.
rule "terraform_standard_module_structure" {
  enabled = false
}
