"""Where do more devices stop to pay? Run: python examples/how_many_devices.py."""

import recsmith


def main() -> None:
    """Plan Criteo on one to four hosts of four H100; a batch of 65,536 samples is shared by all devices."""
    found = recsmith.sweep(
        "criteo-kaggle", devices=(4, 8, 16), device="h100:4", global_batches=(65_536,), planner="cost_greedy"
    )
    for point in found.points:
        if point.total_s is not None:
            rate = 65_536 / point.total_s
            print(f"{point.devices:3} devices: {point.total_s * 1e3:.3f} ms, {rate:,.0f} samples a second")


if __name__ == "__main__":
    main()
