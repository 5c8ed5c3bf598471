"""Machine images in an account of AWS: tests, publishes, lists and deletes them. No part of the controller."""
