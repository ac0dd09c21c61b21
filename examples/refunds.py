"""A refund: each thing is done once, and a person decides."""

from pydantic import BaseModel

from perdure import TaskContext, Tasks, serve

tasks = Tasks("sqlite:///refunds.db")
mcp = tasks.server("refunds")


class Order(BaseModel):
    customer: str
    amount: int


class Decision(BaseModel):
    approved: bool


async def look_up(number: str) -> Order:
    """Stands for a request to the shop."""
    return Order(customer=f"customer {number}", amount=40)


async def pay_back(order: Order, key: str) -> str:
    """Stands for a request to a payment service, which does nothing twice under one key."""
    return f"receipt for {order.amount}"


def send_letter(to: str, receipt: str) -> None:
    """Stands for something that takes a while; plain functions run in a thread."""


@tasks.tool(ttl="7d")
async def refund(number: str, task: TaskContext) -> str:
    """Pay an order back, if a person agrees within three days."""
    order = await task.step("look up", look_up, number)
    answer = await task.elicit("agree", f"Pay {order.amount} back to {order.customer}?", Decision, timeout="3 days")
    if answer.data is None or not answer.data.approved:
        task.decline(f"Nothing was paid back: {answer.action}.")
    receipt = await task.step("pay back", pay_back, order, task.id)
    await task.step("letter", send_letter, order.customer, receipt)
    return receipt


if __name__ == "__main__":
    serve(mcp)
