"""Images per second against certified accuracy, for our models and every rival."""
