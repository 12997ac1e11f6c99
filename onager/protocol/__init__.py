"""The wire protocol: `onager.proto` and its generated stubs, limits, and how errors travel."""
