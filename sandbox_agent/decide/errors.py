"""A refusal or failure that the agent reports to the control plane."""


class AgentError(Exception):
    """`code` is one of the API's error codes; `rule` is the policy rule that refused, if any."""

    def __init__(self, code: str, message: str, rule: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.rule = rule
