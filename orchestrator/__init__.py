"""The domain: sessions and what they are made of. No HTTP here."""
