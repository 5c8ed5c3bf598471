"""What a replica does to lead, and while another one leads."""
