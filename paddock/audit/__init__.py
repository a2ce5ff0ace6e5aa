"""The formats of audit records outside a control plane, and their verification."""
