"""The folder from which Airflow reads DAGs."""
