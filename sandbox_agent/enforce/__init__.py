"""What the kernel is told: guards, Landlock, system call filters, what commands execute."""
