"""What a Celery worker reads; without the last two lines it reserves four runs that wait for it
while others are idle, and takes them with it when it dies.
"""

import os

broker_url = result_backend = os.environ["RAG_BROKER"]
worker_prefetch_multiplier = 1
task_acks_late = True
