"""Sign-in by OpenID Connect: the issuers of the operator, their tokens and users."""
