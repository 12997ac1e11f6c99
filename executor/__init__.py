"""The executor: an agent that takes tasks from schedulers, and the SparkSession that runs them."""
