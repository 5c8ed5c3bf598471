"""What the controller does at GitHub: reads its lists and single records, registers and removes runners."""
