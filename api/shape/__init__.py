"""What an operation is: its declaration, its context, its answers and its errors."""
