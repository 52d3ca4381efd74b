"""Train a small DLRM on generated clicks, then predict with it in one process: python examples/train_and_predict.py."""

import tempfile

from recsmith.training import Run, RunData, load_model, train

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "user", "num_embeddings": 1000},
                                                          {"name": "item", "num_embeddings": 500}]}  # fmt: skip

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(
            train={**CLICKS, "num_samples": 20_000}, test={**CLICKS, "first_sample": 20_000, "num_samples": 5000}
        )
        result = train(Run(data=data, output=f"{folder}/run", ranks=1))
        print(f"test AUC {result['test']['auc']:.3f} after {result['step']} steps")
        model = load_model(f"{folder}/run/model")
        print(model({"user": [[3], [7]], "item": [[17], [250]]}, dense=[[0.1, -0.4], [1.2, 0.3]]))  # (2, 1)
