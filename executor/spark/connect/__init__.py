"""The executor's part of Spark Connect: plans are analysed, commands carried out, and operations planned."""

from onager.executor.spark.connect.operations import connect_query
from onager.executor.spark.connect.requests import ConnectRequests, failure_of
from onager.executor.spark.connect.sessions import opened
