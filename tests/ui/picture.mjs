// Takes the picture of the local page: node tests/ui/picture.mjs docs/pictures/ui.png

import * as world from "./world.mjs";

const sqs = await world.serve();
const letters = Array.from({ length: 320 }, (_, number) => world.deadLetter(number));
await world.send(sqs, sqs.deadLetters, letters);
const ui = await world.page(sqs, "--queue", sqs.deadLetters, "--scope", "tenant", "--allow-redrive");
const browser = await world.launch();
try {
  const tab = await browser.newPage();
  await tab.setViewportSize({ width: 1120, height: 700 });
  await tab.goto(ui.url);
  await tab.getByRole("button", { name: "Look at the queue" }).click();
  const groups = tab.getByRole("table", { name: "Groups of messages" });
  await groups.locator("tr.cause").nth(0).getByRole("checkbox").check();
  await groups.locator("tr.tenant").nth(5).getByRole("checkbox").check();
  await tab.mouse.move(1, 1);
  await tab.evaluate(() => scrollTo(0, 0));
  await tab.screenshot({ path: process.argv[2] });
} finally {
  await world.end(browser);
}
