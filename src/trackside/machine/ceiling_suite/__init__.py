"""What this machine really does: speeds measured one after the other in processes of their own."""
