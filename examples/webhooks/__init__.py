"""A web application that receives webhooks: see app.py, and test_app.py for its tests."""
