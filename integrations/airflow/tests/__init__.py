"""Tests of the provider with a real Airflow and a real cluster: `integrations/airflow/test`."""
