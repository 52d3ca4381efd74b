"""A trained model behind HTTP, which takes raw rows: `MODEL=served uvicorn serve_model:app`."""

import os
from typing import Any

from fastapi import FastAPI, HTTPException

from recsmith.errors import UsageError
from recsmith.training import load_model

app, model = FastAPI(), load_model(os.environ["MODEL"])


@app.post("/score")
def score(rows: list[dict[str, Any]]) -> list[list[float]]:
    """Probabilities of rows, or what is wrong with them."""
    try:
        return model.predict_rows(rows).tolist()
    except UsageError as error:
        raise HTTPException(422, str(error)) from None
