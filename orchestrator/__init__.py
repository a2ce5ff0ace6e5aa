"""The domain: sessions and their parts. No HTTP here."""
