"""What models are worth, how it is spread over clients, what it cost."""
