"""The cost of passing rows from stage to stage: over files, over streams, and over Spark's own shuffle."""
