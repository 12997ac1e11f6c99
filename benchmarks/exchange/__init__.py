"""What it costs to hand rows from stage to stage: over files, over streams, and by Spark's own shuffle."""
