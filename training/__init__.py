"""What a tuned table saves a step of data-parallel training: schedules, their cost, their runs."""
