"""What the machine offers: files, processors, memory."""
