"""The commands `autoscaler install` and `uninstall`, which run the controller under systemd on this host."""
