"""Pure decisions and forms that the control plane imports, too: protocol, commands, redaction."""
