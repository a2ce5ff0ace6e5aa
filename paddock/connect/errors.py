"""Why no control plane, or no key for it, was found."""


class NoAddressError(ValueError):
    """Nothing says which control plane is meant, or with which key.

    `what` is what is missing, `remedy` what to do; `listens` is false if the control plane is known
    but has not told that it listens.
    """

    def __init__(self, what: str, remedy: str | None = None, *, listens: bool = True) -> None:
        super().__init__(what if remedy is None else f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy
        self.listens = listens
