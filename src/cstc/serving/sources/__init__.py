"""Where features come from: extractors, the calls of one wave, and the threads that make them."""
