"""What a collective is and how a schedule is written down and proved."""
