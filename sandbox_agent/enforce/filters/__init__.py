"""The programs that the kernel runs at each system call of a command, and who answers them."""
