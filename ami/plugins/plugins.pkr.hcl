# The plugin that `packer init ami/plugins` installs once. It is in a folder of its own, because Packer 1.6 has the
# amazon-ebs builder built in, and does not know this block.
packer {
  required_plugins {
    amazon = {
      source  = "github.com/hashicorp/amazon"
      version = ">= 1.2.8, < 2"
    }
  }
}
